// Activation functions of the feed-forward block.
#pragma once

#include <cstdint>

namespace alibi {

/// gelu_tanh is GPT-2's approximation, relu2 the square of relu (So et al. 2021, arXiv 2109.08668); swiglu, geglu and
/// reglu have a gate, which doubles the first layer's outputs.
enum class Activation : uint8_t { gelu, gelu_tanh, relu, relu2, swiglu, geglu, reglu };

}  // namespace alibi
