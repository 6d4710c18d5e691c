// expect: contained
// problem: gauss
// compiles: perhaps not
// A source without end.
#include "/dev/zero"
