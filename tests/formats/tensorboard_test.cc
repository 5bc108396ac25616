#include "formats/tensorboard.h"

#include <gtest/gtest.h>

#include <vector>

namespace alibi::formats {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, OfKnownData) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

// Bytes that TensorBoard's own writer gives for the same events.
TEST(Tensorboard, RecordsByteForByte) {
  EXPECT_EQ(tensorboard_file_header(1.5),
            from_hex("1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"));
  const std::vector<TensorboardScalar> scalars = {{"train/loss", 2.5}, {"valid/loss", -1}};
  EXPECT_EQ(tensorboard_scalars(1e9 + 0.25, 300, scalars),
            from_hex("34000000000000005e33175c090000200065cdcd4110ac022a260a110a0a747261696e2f6c6f7373"
                     "15000020400a110a0a76616c69642f6c6f737315000080bf0effe560"));
}

}  // namespace
}  // namespace alibi::formats
