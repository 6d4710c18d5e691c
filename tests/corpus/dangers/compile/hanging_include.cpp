// expect: contained
// problem: gauss
// compiles: perhaps not
// Waits for input that never comes, from whatever the compiler has as its standard input or terminal.
#include "/dev/stdin"
#include "/dev/tty"
