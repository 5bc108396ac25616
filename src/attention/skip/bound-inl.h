// The inequality of the skip rule. It is included in the region of each instruction set that computes it, inside of the
// region's namespace.

struct SkipBound {
  /// log2 of an upper bound of the weight of the remaining keys over 2^top. `beyond` is the largest bias that one of
  /// them has. Number is double, or the vector of an instruction set; Math has its arithmetic.
  ///
  /// With a softcap c and f(x) = c tanh(x / c), a score of at most u before the cap is at most f(u), and at most max(u,
  /// 0). So the keys weigh at most f(u) plus the weight of their biases, for the largest u, and at most the sum of
  /// their weight without the cap and that of their biases.
  template <class Math, class Number>
  static Number log2_weight(const Math& m, const SkipRow<Number>& row, const RemainingKeys& keys, Number beyond,
                            const Roundings& r) {
    const Number low = m.set(keys.low), biases = m.set(keys.biases), flushed = m.set(r.flushed), top = m.abs(row.top);
    const Number score = m.mul_add(m.set(keys.score_per_norm), row.norm, flushed);  // the largest
    Number weight = biases;
    if (keys.summed) weight = m.add(row.product, m.mul_add(row.share, m.set(keys.rise), low));
    if (!keys.summed || r.softcap > 0) {
      const Number largest = m.min(m.mul_add(m.set(keys.radius_per_norm), row.norm, row.product), score);
      const Number of_largest = r.softcap > 0 ? m.cap(largest, r.softcap, biases) : m.add(largest, biases);
      const Number of_sum = m.add(m.max(weight, biases), m.set(1));  // log2(2^a + 2^b) <= max(a, b) + 1
      weight = keys.summed ? m.min(of_largest, of_sum) : of_largest;
    }
    const Number magnitude = m.add(m.add(score, m.abs(beyond)), m.add(top, m.abs(low)));
    Number exponent = m.add(m.sub(weight, m.sub(row.top, beyond)), flushed);
    exponent = m.mul_add(magnitude, m.set(r.of_all), exponent);
    // What only some kernels add.
    return m.add(exponent, m.mul_add(score, m.set(r.of_scores), m.mul_add(top, m.set(r.of_top), m.set(r.fixed))));
  }
};
