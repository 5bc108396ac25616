// A hash that is part of file formats and of the split rule. It must not change.
#pragma once

#include <cstdint>
#include <string_view>

namespace alibi::text {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325ull;
inline constexpr uint64_t kFnvPrime = 0x100000001b3ull;

/// FNV-1a, 64 bits. `hash` continues an earlier hash.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = kFnvStart) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

}  // namespace alibi::text
