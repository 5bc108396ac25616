#pragma once

/// The version, in one place: the build reads it from here.
#define ALIBI_VERSION "0.1.0"

namespace alibi {
inline constexpr const char* version = ALIBI_VERSION;
}
