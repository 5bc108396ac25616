// Threads, memory and instruction sets of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/export.h"

namespace alibi {

/// Number of threads the library computes with; at first the number of cores this process may use.
/// Results do not depend on it.
///
/// Every function of the library may be called from any thread at any time; calls on the same object are as those on a
/// standard container: one that changes it stands alone. Threads that compute at the same time share these threads:
/// one of them has them at a time, the others go on alone. A child made by fork() starts threads of its own.
ALIBI_API int threads();
/// Waits until the loop that is running has ended. Throws UsageError unless 1 <= count <= 1024, and in a task of a loop
/// of the library. The threads are started when they are first needed; if the system refuses, what needed them throws
/// Error.
ALIBI_API void set_threads(int count);

/// Instruction sets that kernels are written for, from plain to wide. Each includes the ones before it.
enum class Isa : uint8_t { scalar, avx2, avx512, avx512_bf16, amx };

ALIBI_API const char* name_of(Isa isa);
/// The best one this CPU and operating system offer, or what the environment variable ALIBI_ISA names: that makes any
/// machine a lesser one, for oneDNN too. Throws Error if ALIBI_ISA is no instruction set or this CPU lacks it.
ALIBI_API Isa best_isa();
/// The one that the library's own kernels use, best_isa() at first. Throws as best_isa() does.
ALIBI_API Isa isa();
/// Forces one (for tests and benchmarks). Throws Error if it is better than best_isa().
ALIBI_API void set_isa(Isa isa);
/// All up to best_isa().
ALIBI_API std::vector<Isa> available_isas();
/// The CPU's own name, e.g. for reports.
ALIBI_API std::string cpu_name();

/// Bytes of tensors and workspaces alive now, and the most since the last reset.
ALIBI_API int64_t tensor_bytes();
ALIBI_API int64_t peak_tensor_bytes();
ALIBI_API void reset_peak_tensor_bytes();
/// Most resident memory of the process since the last reset (Linux: VmHWM), or 0 where it cannot be read.
ALIBI_API int64_t peak_resident_bytes();
/// Starts the measurement of peak_resident_bytes anew. Returns false where the system does not allow it;
/// the peak is then that of the whole life of the process.
ALIBI_API bool reset_peak_resident_bytes();

}  // namespace alibi
