// Learned positions: a table of max_length vectors is added to the input. There are no positions past the table.
#include "core/check.h"
#include "model/field_table.h"
#include "model/position.h"
#include "nn/positions.h"

namespace alibi::model::positions {
namespace {

class Learned : public InputPositions {
 public:
  using InputPositions::InputPositions;

  std::optional<int64_t> end() const override { return config_.embedding.max_length; }
  void fit(TransformerConfig& config, int64_t train_length) const override {
    config.embedding.max_length = train_length;
  }
  void declare(const VisitParameter& visit) override {
    visit(table_, {.name = "wpe.weight",
                   .shape = {config_.embedding.max_length, config_.d_model},
                   .start = Initializer::normal(0.02f)});
  }
  void enter(const Tensor& x, int64_t first, Tensor& y) const override {
    const int64_t last = first + x.size(1);
    alibi::check(last <= config_.embedding.max_length,
                 "[transformer] learned positions end at {}, the input {} {}; no learned model runs past its table",
                 config_.embedding.max_length, first > 0 ? "goes to" : "has length", last);
    nn::add_positions(x, table_->value.slice(0, first, last), y);
  }
  void enter_backward(const Tensor& dy, int64_t first) const override {
    Tensor rows = table_->gradient.slice(0, first, first + dy.size(1));
    nn::add_positions_backward(dy, rows);
  }

 private:
  Parameter* table_ = nullptr;
};

}  // namespace

PositionMethod learned() {
  return {
      .name = "learned",
      .formula = "input + table[i]",
      .paper = "Gehring et al. 2017, arXiv 1705.03122",
      .cost = "d_model parameters for each position; no text beyond the table; every key is visited",
      .make = make_part<InputPositions, Learned>,
      .style = {"learned", "#E69F00", "#8A5D00", "#F0E442", "#F0E442", report::Marker::down_triangle},
      .fields = {{{ALIBI_FIELD("max_length", transformer.embedding.max_length), .range = {.least = 1, .most = 0x1p31},
                   .help = "Learned positions: number of rows of the table", .default_text = "the training length"},
                  {.json = "alibi.max_length", .always_written = true}}},
  };
}

}  // namespace alibi::model::positions
