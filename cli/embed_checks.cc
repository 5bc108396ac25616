// alibi embed --check-float32 and --check-skip: how much a faster way of computing changes the vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "embedder.h"

namespace alibi::cli {
namespace {

/// Cosines between the vectors and those of another model.
nlohmann::ordered_json compared(const EmbedCommand& options, std::span<const float> a, const LanguageModel& other,
                                std::span<const EmbedItem> items, const char* what) {
  const std::vector<EmbedItem> some(items.begin(), items.end());
  const std::vector<float> b = Embedder(options, other, some, !options.out.empty()).vectors();
  const int64_t width = other.config().transformer.d_model, count = std::ssize(b) / width;
  double sum = 0, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto product = [&](std::span<const float> x, std::span<const float> y) {
      return std::inner_product(
          x.begin() + i * width, x.begin() + (i + 1) * width, y.begin() + i * width, 0.0, std::plus<>(),
          [](float one, float two) { return static_cast<double>(one) * static_cast<double>(two); });
    };
    const double norms = std::sqrt(product(a, a) * product(b, b));
    const double difference = norms > 0 ? std::max(0.0, 1 - product(a, b) / norms) : 0;
    sum += difference;
    if (!(difference <= most)) most = difference;
  }
  const double mean = count > 0 ? sum / static_cast<double>(count) : 0;
  if (!options.out.empty()) {  // otherwise standard output is for the vectors
    say("{}: the cosines of {} vectors differ from 1 by {:.2g} on average, {:.2g} at most\n", what, count, mean, most);
  }
  return {{"texts", some.size()},
          {"vectors", count},
          {"mean", 1 - mean},
          {"least", 1 - most},
          {"largest_difference", most}};
}

}  // namespace

nlohmann::ordered_json checked_vectors(const EmbedCommand& options, const LanguageModel& model,
                                       const std::vector<EmbedItem>& items, std::span<const float> vectors) {
  nlohmann::ordered_json found = nlohmann::ordered_json::object();
  const auto first = [&](int64_t count) {
    return std::span(items).first(std::min(items.size(), static_cast<size_t>(count)));
  };
  if (options.check_float32 > 0) {
    LanguageModel exact = LanguageModel::load(options.model);
    exact.set_interpolation(model.interpolation());
    found["cosine_to_float32"] = compared(options, vectors, exact, first(options.check_float32), "float32");
  }
  if (options.check_skip > 0) {
    LanguageModel exact =
        model.sharing_weights([](LanguageModelConfig& config) { config.transformer.attention.tolerance = 0; });
    found["cosine_to_every_key"] = compared(options, vectors, exact, first(options.check_skip), "every key");
  }
  return found;
}

}  // namespace alibi::cli
