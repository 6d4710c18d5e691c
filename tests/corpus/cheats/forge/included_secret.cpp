// expect: reject
// problem: gauss
// compiles: perhaps not
// The compiler quotes a file that only the judge's user may read in its error.
#include "@SECRET@"
