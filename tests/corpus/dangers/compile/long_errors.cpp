// expect: contained
// problem: gauss
// compiles: perhaps not
// One line of source, megabytes of errors.
#define TEN(x) x x x x x x x x x x
#define MANY(x) TEN(TEN(TEN(TEN(x))))
extern "C" int custom_kernel() { return 0 MANY(+undeclared_name_with_a_rather_long_name_that_is_repeated()); }
