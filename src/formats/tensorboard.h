// Writes TensorBoard's event files: a sequence of TFRecords (length, masked CRC-32C of the length, data, masked CRC-32C
// of the data; all little endian), each an Event in the wire format of protocol buffers.
// https://github.com/tensorflow/tensorboard: tensorboard/compat/proto/event.proto, summary.proto
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace alibi::formats {

/// The Castagnoli checksum (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view data);

struct TensorboardScalar {
  std::string_view tag;
  double value;  ///< stored as float32
};

/// The record that begins a file. Times are seconds since 1970.
std::string tensorboard_file_header(double time);
/// A record with the values of one step.
std::string tensorboard_scalars(double time, int64_t step, std::span<const TensorboardScalar> scalars);

}  // namespace alibi::formats
