// T5's relative position bias (Raffel et al. 2020, section 2.1): a learned value for each head and bucket of distances,
// shared by the layers and added to the scores.
#include <algorithm>

#include "model/field_table.h"
#include "model/position.h"

namespace alibi::model::positions {
namespace {

class T5 : public PositionBias {
 public:
  using PositionBias::PositionBias;

  void check(const ConfigFields& fields) const override {
    fields.range("t5_buckets", config_.attention.t5_buckets, config_.attention.causal ? 2 : 4, 4096);
    fields.range("t5_max_distance", config_.attention.t5_max_distance, config_.attention.t5_buckets, largest_extent);
  }
  void set_defaults(TransformerConfig& config, int64_t train_length) const override {
    config.attention.t5_max_distance =
        std::max(static_cast<int>(std::min<int64_t>(train_length, INT32_MAX) / 4), config.attention.t5_buckets);
  }
  void declare(const VisitParameter& visit) override {
    visit(table_, {.name = "relative_bias.weight",
                   .shape = {config_.attention.t5_buckets, config_.attention.heads},
                   .start = Initializer::normal(static_cast<float>(config_.attention.t5_init)),
                   .rate_factor = config_.attention.t5_rate_factor});
  }
  std::vector<AttentionOptions> biases(int64_t, float) const override {
    AttentionOptions options;
    options.buckets = BucketedBias{table_->value, config_.attention.t5_max_distance};
    return {options};
  }
  /// The gradient is that of the table, so it needs no backward().
  BiasSums sums(int, const AttentionOptions&) const override { return {.dtable = table_->gradient}; }

 private:
  Parameter* table_ = nullptr;
};

}  // namespace

PositionMethod t5() {
  return {
      .name = "t5",
      .formula = "score + table[bucket of i - j, head]",
      .paper = "Raffel et al. 2020, arXiv 1910.10683",
      .cost = "32 parameters for each head; far keys are skipped where the bias falls enough",
      .make = make_part<PositionBias, T5>,
      .style = {"t5", "#CC79A7", "#9C4274", "#E29BC4", "#E29BC4", report::Marker::diamond},
      .fields =
          {
              {{ALIBI_FIELD("t5_buckets", transformer.attention.t5_buckets), .range = {.least = 2, .most = 4096},
                .help = "T5: number of distance buckets", .rare = true},
               {.json = "alibi.t5_buckets", .always_written = true, .offered = true}},
              {{ALIBI_FIELD("t5_max_distance", transformer.attention.t5_max_distance),
                .range = {.least = 1, .most = largest_extent},
                .help = "T5: distance in tokens from which on all keys share the last bucket",
                .default_text = "a quarter of the training length", .rare = true},
               {.json = "alibi.t5_max_distance", .always_written = true, .offered = true}},
              {{ALIBI_FIELD("t5_init", transformer.attention.t5_init), .range = {.least = 0, .most = 100},
                .help = "T5: standard deviation of the initial bias table", .rare = true},
               {.json = "alibi.t5_init", .always_written = true, .offered = true}},
              {{ALIBI_FIELD("t5_rate_factor", transformer.attention.t5_rate_factor), .range = {.least = 0, .most = 1e6},
                .help = "T5: learning rate of the bias table as a multiple of --learning-rate",
                .default_text = "64; 1 for wikitext103", .rare = true},
               {.json = "alibi.t5_rate_factor", .always_written = true, .offered = true}},
          },
  };
}

}  // namespace alibi::model::positions
