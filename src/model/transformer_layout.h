// Which parameters a Transformer has, and where each stands in the list.
#pragma once

#include <vector>

#include "alibi/transformer.h"
#include "model/parameter_spec.h"

namespace alibi {

struct TransformerLayout {
  /// Places of a layer's parameters in the list; -1: there is none.
  struct Layer {
    int norm1_weight, norm1_bias, qkv_weight, qkv_bias, out_weight, out_bias;
    int norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
  };

  std::vector<ParameterSpec> specs;
  std::vector<Layer> layers;
  int final_norm_weight = -1, final_norm_bias = -1;
  int position_table = -1;  ///< learned: wpe; t5: relative_bias

  /// Throws UsageError for a configuration that is none.
  explicit TransformerLayout(const TransformerConfig& config);

 private:
  int add(const std::string& name, const Shape& shape, Start start, bool decays);
};

}  // namespace alibi
