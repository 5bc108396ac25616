#include "train_display.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "output.h"

namespace alibi::cli {
namespace {

constexpr std::chrono::seconds kBetweenLines(10);

}  // namespace

TrainDisplay::TrainDisplay(double flops_per_token, double ceiling)
    : flops_per_token_(flops_per_token), ceiling_(ceiling), progress_(stderr) {
  progress_.begin("train");
}

void TrainDisplay::update(const TrainStatus& status) {
  // The most important fields come first, because a narrow terminal truncates the line.
  std::string fields =
      fmt::format("loss {:.3f}  perplexity {}  {} tokens/s", status.loss,
                  core::format_perplexity(std::exp(status.loss)), core::format_count(status.tokens_per_second));
  if (status.step < status.steps) fields += fmt::format("  {} left", core::format_duration(status.seconds_left));
  fields += fmt::format("  rate {:.3g}  norm {:.3g}", status.learning_rate, status.gradient_norm);
  if (ceiling_ > 0) {
    fields += fmt::format("  {:.0f} % of peak", 100 * status.tokens_per_second * flops_per_token_ / ceiling_);
  }
  fields += fmt::format("  {}", core::format_bytes(status.memory_bytes));

  const auto now = std::chrono::steady_clock::now();
  const bool is_due = !progress_.active() && now - last_line_ >= kBetweenLines;
  if (is_due || status.valid_loss) progress_.clear();
  if (is_due) {
    last_line_ = now;
    say("update {} of {}  {}\n", core::format_integer(status.step), core::format_integer(status.steps), fields);
  }
  if (status.valid_loss) {
    say("update {}: held-out loss {:.4f}, perplexity {}{}\n", core::format_integer(status.step), *status.valid_loss,
        core::format_perplexity(std::exp(*status.valid_loss)), status.best ? ", the best so far" : "");
  }
  if (is_due || status.valid_loss) flush_output();
  // 0, because the remaining time is already among the fields.
  progress_.update(static_cast<double>(status.step) / static_cast<double>(status.steps), fields, 0);
}

}  // namespace alibi::cli
