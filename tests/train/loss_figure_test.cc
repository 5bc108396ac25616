#include <gtest/gtest.h>

#include "report/markup_check.h"
#include "train/metrics.h"

namespace alibi::training {
namespace {

/// All that is written in the figure.
std::string texts_of(const std::string& svg) {
  std::string all;
  for (const testing::Element& element : testing::read_markup(svg)) {
    if (element.name == "text") all += element.text + "|";
  }
  return all;
}

TEST(LossFigure, ShowsTheLastLosses) {
  TrainState state;
  state.step = 3;
  state.loss = {5, 4, 2.5f};
  state.evaluations = {{1, 4.5}, {3, 3.25}};
  const std::string texts = texts_of(loss_figure(state, 100));
  for (const char* text : {"training2.500|", "held-out3.250|", "3 updates of 100 tokens|"}) {
    EXPECT_NE(texts.find(text), std::string::npos) << text << " in " << texts;
  }
}

TEST(LossFigure, IsLabelledForThoseWhoDoNotSeeIt) {
  TrainState state;
  state.step = 2;
  state.loss = {5, 4};
  testing::expect_labelled(loss_figure(state, 100), "loss");
}

TEST(LossFigure, ManyUpdatesShareAPoint) {
  TrainState state;
  state.step = 1000;  // 334 points of three updates, the last of one
  for (int step = 1; step < 1000; ++step) state.loss.push_back(2);
  state.loss.push_back(1.5f);
  EXPECT_NE(texts_of(loss_figure(state, 10)).find("training1.500|"), std::string::npos);
  state.loss.pop_back();
  state.loss.back() = 5;
  EXPECT_NE(texts_of(loss_figure(state, 10)).find("training3.000|"), std::string::npos) << "the mean of 2, 2 and 5";
}

}  // namespace
}  // namespace alibi::training
