// expect: contained
// problem: gauss
// compiles: perhaps not
// Quotes the user's files in its errors.
#include "/etc/shadow"
#include "@SECRET@"
#include "/proc/self/environ"
