// Threads, memory and instruction sets of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/export.h"

namespace alibi {

/// Number of threads that the library computes with. The default is the number of cores that this process may use.
/// Results do not depend on it.
///
/// Every function of the library may be called from any thread at any time; as with a standard container, a call that
/// changes an object needs exclusive access to it. If several threads of the program compute at the same time, one of
/// them uses these threads and the others compute without them. A child made by fork() starts its own threads.
ALIBI_API int threads();
/// Waits for a running loop of the library to end. Throws UsageError unless 1 <= count <= 1024, and if a task of such a
/// loop calls it. Threads are started when they are first needed; if the system refuses, the call that needed them
/// throws Error.
ALIBI_API void set_threads(int count);

/// Instruction sets that kernels are written for. Those of a processor are in rising order, and each includes the ones
/// before it. ARM64 has `neon`. x86-64 has the others.
enum class Isa : uint8_t { scalar, neon, avx2, avx512, avx512_bf16, amx };

ALIBI_API const char* name_of(Isa isa);
/// The best instruction set of this CPU and operating system, or the one that the environment variable ALIBI_ISA names,
/// which limits oneDNN too. Throws Error if ALIBI_ISA is not an instruction set, or if this CPU lacks it.
ALIBI_API Isa best_isa();
/// The instruction set that the library's own kernels use, by default best_isa(). Throws what best_isa() throws.
ALIBI_API Isa isa();
/// Selects an instruction set, for tests and benchmarks. Throws Error if it is better than best_isa().
ALIBI_API void set_isa(Isa isa);
/// All instruction sets of this processor up to best_isa().
ALIBI_API std::vector<Isa> available_isas();
/// The name that the CPU reports, e.g. for reports.
ALIBI_API std::string cpu_name();

/// Bytes of tensors and workspaces that are allocated now, and their peak since the last reset.
ALIBI_API int64_t tensor_bytes();
ALIBI_API int64_t peak_tensor_bytes();
ALIBI_API void reset_peak_tensor_bytes();
/// Peak resident memory of the process since the last reset (Linux: VmHWM); 0 if it cannot be read.
ALIBI_API int64_t peak_resident_bytes();
/// Resets peak_resident_bytes(). Returns false if the system does not allow it; the peak then covers the whole life of
/// the process.
ALIBI_API bool reset_peak_resident_bytes();

}  // namespace alibi
