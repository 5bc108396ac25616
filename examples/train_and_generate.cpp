// Trains a small language model on a text at a short length, then reads and writes far past it.
//   train_and_generate [FILE] [TOKENS TO TRAIN ON]        without a file: on this program's own source
#include <alibi/alibi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

int main(int argc, char** argv) try {
  std::ifstream file(argc > 1 ? argv[1] : __FILE__, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});

  const int64_t train_length = 64;
  const alibi::LanguageModelConfig config =
      alibi::with_position(alibi::preset("tiny"), alibi::Position::alibi, train_length);
  alibi::LanguageModel model(config, /*seed=*/1);
  const std::vector<int32_t> tokens = model.tokenizer().encode(text);

  alibi::TrainOptions options;
  options.length = train_length;
  options.tokens = argc > 2 ? std::atoll(argv[2]) : 100'000;
  options.batch_tokens = 2048;
  alibi::train(model, tokens, options, [](const alibi::TrainStatus& status) {
    if (status.step % 10 == 0) {
      std::printf("step %lld of %lld, loss %.3f\n", static_cast<long long>(status.step),
                  static_cast<long long>(status.steps), status.loss);
    }
  });

  for (const int64_t length : {train_length, 8 * train_length}) {
    alibi::EvaluateOptions evaluate;
    evaluate.length = length;
    std::printf("perplexity at %lld: %.3f\n", static_cast<long long>(length),
                alibi::evaluate(model, tokens, evaluate).perplexity());
  }

  alibi::GenerateOptions generate;
  generate.max_tokens = 4 * train_length;
  generate.temperature = 0.7;
  std::cout << "int main" << model.generate("int main", generate) << std::endl;
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
