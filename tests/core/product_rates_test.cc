// Which precision is chosen, with measured rates and with given ones.
#include "core/product_rates.h"

#include <gtest/gtest.h>

#include "alibi/transformer.h"
#include "testing.h"

namespace alibi {
namespace {

class ProductRates : public testing::Test {
 protected:
  void TearDown() override { core::set_bf16_speedup({}); }

 private:
  test::RuntimeGuard guard_;
};

TEST_F(ProductRates, AMeasurementHoldsForTheProcess) {
  if (best_isa() < Isa::avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  set_isa(Isa::avx512_bf16);
  core::set_bf16_speedup({});
  const std::optional<double> first = core::bf16_speedup();
  ASSERT_TRUE(first.has_value());
  EXPECT_GT(*first, 0);  // about 0.2 to 2 on a machine that does nothing else
  EXPECT_EQ(core::bf16_speedup(), first);
  EXPECT_EQ(best_precision() == Precision::bf16, *first >= 1.2);
}

TEST_F(ProductRates, TheFasterPrecisionIsChosen) {
  if (best_isa() < Isa::avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  set_isa(Isa::avx512_bf16);
  for (const auto& [speedup, expected] : {std::pair(0.48, Precision::f32),
                                          {1.0, Precision::f32},
                                          {1.19, Precision::f32},
                                          {1.2, Precision::bf16},
                                          {2.0, Precision::bf16}}) {
    core::set_bf16_speedup(speedup);
    EXPECT_EQ(best_precision(), expected) << speedup;
    EXPECT_EQ(precision_from("auto"), expected) << speedup;
    EXPECT_EQ(precision_from("bf16"), Precision::bf16);
    EXPECT_EQ(precision_from("f32"), Precision::f32);
  }
  core::set_bf16_speedup(0.48);
  EXPECT_EQ(why_best_precision(),
            "bfloat16 products are 0.48 times as fast as float32 products here, and bf16 is used from 1.2 on");
}

TEST_F(ProductRates, OtherInstructionSetsNeedNoMeasurement) {
  core::set_bf16_speedup(2);
  for (const Isa candidate : available_isas()) {
    if (candidate == Isa::avx512_bf16) continue;
    set_isa(candidate);
    EXPECT_FALSE(core::bf16_speedup().has_value());
    EXPECT_EQ(best_precision(), candidate == Isa::amx ? Precision::bf16 : Precision::f32) << name_of(candidate);
    EXPECT_NE(why_best_precision().find(candidate == Isa::amx ? "AMX" : name_of(candidate)), std::string::npos);
  }
}

}  // namespace
}  // namespace alibi
