#include "formats/tensorboard.h"

#include <array>
#include <bit>

namespace alibi::formats {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}

template <class T>
void put_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(static_cast<uint8_t>(value) | 0x80);
  out += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_key(std::string& out, uint32_t field, uint32_t type) { put_varint(out, field << 3 | type); }

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

/// The masked CRC that the format stores, because a CRC over data with CRCs would be weak.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

std::string record(std::string_view data) {
  std::string length;
  put_fixed<uint64_t>(length, data.size());
  std::string out = length;
  put_fixed(out, masked(crc32c(length)));
  out += data;
  put_fixed(out, masked(crc32c(data)));
  return out;
}

/// Event.wall_time = 1
std::string event_at(double time) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(time));
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static constexpr std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = ~0u;
  for (const char c : data) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xffu];
  return ~crc;
}

std::string tensorboard_file_header(double time) {
  std::string event = event_at(time);
  put_bytes(event, 3, "brain.Event:2");  // Event.file_version = 3
  return record(event);
}

std::string tensorboard_scalars(double time, int64_t step, std::span<const TensorboardScalar> scalars) {
  std::string summary;
  for (const TensorboardScalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);  // Summary.Value.tag = 1
    put_key(value, 2, kFixed32);      // Summary.Value.simple_value = 2
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);  // Summary.value = 1
  }
  std::string event = event_at(time);
  put_key(event, 2, kVarint);  // Event.step = 2
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);  // Event.summary = 5
  return record(event);
}

}  // namespace alibi::formats
