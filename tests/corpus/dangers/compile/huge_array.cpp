// expect: contained
// problem: gauss
// compiles: perhaps not
// A few characters that make an object file of many gigabytes.
char filled[1ul << 36] = {1};

extern "C" char custom_kernel() { return filled[0]; }
