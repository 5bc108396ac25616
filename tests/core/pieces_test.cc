#include "core/pieces.h"

#include <gtest/gtest.h>

namespace alibi::core {
namespace {

TEST(Pieces, EachElementOnceInOrder) {
  const std::vector<int64_t> arrays = {5, 0, 1, 8, 0, 4, 0};
  for (const int64_t grain : {1, 3, 4, 100}) {
    Pieces pieces(grain);
    for (const int64_t elements : arrays) pieces.add(elements);
    int64_t piece = 0;
    for (size_t array = 0; array < arrays.size(); ++array) {
      for (int64_t begin = 0; begin < arrays[array]; begin += grain, ++piece) {
        const Piece found = pieces.at(piece);
        EXPECT_EQ(found.array, array) << piece << " of grain " << grain;
        EXPECT_EQ(found.begin, begin);
        EXPECT_EQ(found.end, std::min(begin + grain, arrays[array]));
      }
    }
    EXPECT_EQ(pieces.size(), piece);
  }
  EXPECT_EQ(Pieces(4).size(), 0);
}

}  // namespace
}  // namespace alibi::core
