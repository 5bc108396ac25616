// The bare transformer: a stack of blocks over vectors, decoder or encoder, without a maximum length.
#include <alibi/alibi.h>

#include <cstdio>

int main() {
  alibi::TransformerConfig config;  // 6 layers, d_model 256, 8 heads, dropout 0.1, causal
  const alibi::Transformer decoder(config, /*seed=*/1);

  alibi::Tensor x({8, 100, 256});  // [batch, length, d_model]
  x.fill(0.5f);
  const alibi::Tensor y = decoder(x);
  std::printf("decoder %s -> %s\n", alibi::to_string(x.shape()).c_str(), alibi::to_string(y.shape()).c_str());

  alibi::Tensor longer({1, 1000, 256});  // any length, without a table to grow
  longer.fill(0.5f);
  std::printf("decoder %s -> %s\n", alibi::to_string(longer.shape()).c_str(),
              alibi::to_string(decoder(longer).shape()).c_str());

  config.attention.causal = false;
  const alibi::Transformer encoder(config, /*seed=*/1);
  std::printf("encoder %s -> %s\n", alibi::to_string(x.shape()).c_str(), alibi::to_string(encoder(x).shape()).c_str());
  return 0;
}
