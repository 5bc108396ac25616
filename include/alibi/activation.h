// Activation functions of the feed-forward block.
#pragma once

#include <cstdint>

namespace alibi {

/// gelu_tanh is GPT-2's approximation; swiglu, geglu and reglu have a gate, which doubles the first layer's outputs.
enum class Activation : uint8_t { gelu, gelu_tanh, relu, swiglu, geglu, reglu };

}  // namespace alibi
