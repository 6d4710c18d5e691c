"""Tests of the llm stages. A package, so that its conftest does not hide the one above."""
