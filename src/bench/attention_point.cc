#include "bench/attention_point.h"

namespace alibi::bench {

const char* name_of(Pass pass) {
  return pass == Pass::forward ? "forward" : pass == Pass::backward ? "backward" : "decode";
}

float default_tolerance(DType dtype) { return dtype == DType::bfloat16 ? 0x1p-11f : 0x1p-24f; }

std::vector<float> AttentionBenchSettings::tolerances_of(DType dtype) const {
  const bool falls = layers.empty() ? shape.position != Position::t5 && shape.position != Position::none
                                    : !layers.front().options.alibi_slopes.empty() ||
                                          !layers.front().options.alibi_slopes_after.empty() ||
                                          layers.front().options.log_decay.has_value() ||
                                          layers.front().options.bias_by_distance.has_value();
  if (!falls) return {0.0f};
  return tolerances.empty() ? std::vector<float>{0.0f, default_tolerance(dtype)} : tolerances;
}

}  // namespace alibi::bench
