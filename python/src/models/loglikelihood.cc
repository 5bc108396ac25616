// Log-likelihoods of the ends of many texts at once.
#include "alibi/loglikelihood.h"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

/// `ids` are those of all texts one after the other.
nb::tuple score_ends(const LanguageModel& model, nb::handle ids, const std::vector<int64_t>& counts,
                     const std::vector<int64_t>& targets, int64_t batch_tokens) {
  const Tensor read = ids_of(ids, "loglikelihoods");
  std::vector<Continuation> texts;
  std::span<const int32_t> rest = tokens_of(read);
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::span<const int32_t> text = rest.first(static_cast<size_t>(counts[i]));
    texts.push_back({{text.begin(), text.end()}, targets[i]});
    rest = rest.subspan(text.size());
  }
  const LoglikelihoodOptions options{.batch_tokens = batch_tokens};
  std::vector<double> sums;
  std::vector<uint8_t> greedy;
  for (const Loglikelihood& found : computed([&] { return loglikelihoods(model, texts, options); })) {
    sums.push_back(found.sum);
    greedy.push_back(found.greedy ? 1 : 0);
  }
  return nb::make_tuple(array_of(std::move(sums)), array_of(std::move(greedy)));
}

}  // namespace

void bind_loglikelihood(nb::module_& m) {
  m.def("loglikelihoods", score_ends, "model"_a, "ids"_a, "counts"_a, "targets"_a, "batch_tokens"_a);
}

}  // namespace alibi::python
