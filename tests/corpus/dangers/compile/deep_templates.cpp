// expect: contained
// problem: gauss
// compiles: perhaps not
// Template recursion that doubles at each step.
template <int N, long M>
struct Deep {
  static constexpr long value = Deep<N - 1, 2 * M>::value + Deep<N - 1, 2 * M + 1>::value;
};
template <long M>
struct Deep<0, M> {
  static constexpr long value = 1;
};

extern "C" long custom_kernel() { return Deep<40, 0>::value; }
