"""Sizes that know the C++ that computes them."""


class Size(int):
    """A size with the C++ that computes it."""

    text = ""

    @classmethod
    def of(cls, value: int, text: str = "") -> "Size":
        made = cls(value)
        made.text = text or getattr(value, "text", str(int(value)))
        return made


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "/")):

    def _both(self: Size, other: int, name: str = _name, sign: str = _sign) -> Size:
        return Size.of(getattr(int, f"__{name}__")(self, other), f"({self.text} {sign} {Size.of(other).text})")

    def _other(self: Size, other: int, name: str = _name, sign: str = _sign) -> Size:
        return Size.of(getattr(int, f"__{name}__")(int(other), self), f"({Size.of(other).text} {sign} {self.text})")

    setattr(Size, f"__{_name}__", _both)
    setattr(Size, f"__r{_name}__", _other)
