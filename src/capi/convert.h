// Conversion between C and C++: arguments are checked and converted to the library's types, and exceptions to a status
// with a message.
#pragma once

#include <cerrno>
#include <new>
#include <optional>

#include "alibi/attention.h"
#include "alibi/attention_positions.h"
#include "alibi/c.h"
#include "core/check.h"

struct alibi_attention_state {
  alibi::AttentionState state;
  alibi::AttentionPositionsState positions;  ///< of alibi_attention_positions(); `state` then has its lse and counts
  void* stream = nullptr;                    ///< stream of the last forward call
};

namespace alibi::capi {

/// Stores the message for alibi_last_error() in this thread. Never fails.
alibi_status keep_error(alibi_status status, const char* message) noexcept;

/// Restores errno, because a C function reports errors only by its status. (For example, expf() of an attention weight
/// that underflows sets ERANGE.)
class KeepErrno {
 public:
  KeepErrno() = default;
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;
  ~KeepErrno() { errno = before_; }

 private:
  int before_ = errno;
};

/// Runs the body of a C function.
template <class Body>
alibi_status guarded(const Body& body) noexcept {
  const KeepErrno keep_errno;
  try {
    body();
    return ALIBI_OK;
  } catch (const Error& error) {
    return keep_error(ALIBI_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return keep_error(ALIBI_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return keep_error(ALIBI_INTERNAL, error.what());
  } catch (...) {
    return keep_error(ALIBI_INTERNAL, "unknown exception");
  }
}

/// Throws Error if the pointer is null.
void check_pointer(const char* operation, const char* name, const void* pointer);

DType to_dtype(const char* operation, const char* name, int32_t dtype);

/// Device and stream of a call.
struct Place {
  Device device = Device::cpu;
  void* stream = nullptr;
};
Place to_place(const char* operation, const alibi_attention_options* options);
/// `prefix` is prepended to argument names in messages.
Place to_place(const char* operation, int32_t device, void* stream, const char* prefix = "");

/// Returns a view of the caller's memory. Throws Error that names the argument if no memory can have this layout.
Tensor to_tensor(const char* operation, const char* name, const alibi_tensor* tensor, Device device = Device::cpu);

/// Row offsets or numbers of tokens of sequences. Throws Error that names the argument.
std::vector<int32_t> to_offsets(const char* operation, const char* name, const int32_t* offsets, size_t count);
/// Converts the options. The shape of q determines how many slopes are allowed.
/// No table if `pages` is null.
std::optional<Tensor> to_block_table(const char* operation, const int32_t* pages, int64_t sequences, int64_t count);
AttentionOptions to_options(const char* operation, const alibi_attention_options* options, const Tensor& q);

}  // namespace alibi::capi
