// lane.h for the CPU: each thread of a block is a fiber, and an operation of a warp or a block happens when all its
// threads have arrived. It finds errors that a GPU would not always show. Asynchronous copies arrive only at the wait
// for them, and shared memory is NaN until it is written. The program ends if an address is outside of the block's
// memory, lanes of a warp do different things, or threads wait forever.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "alibi/tensor.h"
#include "attention/cuda/arguments.h"

#define ALIBI_LANE inline
#define ALIBI_UNROLLED
#define ALIBI_UNROLLED_BY_8
#define ALIBI_NOT_UNROLLED
#define ALIBI_LANES_BEGIN          \
  namespace alibi::kernels::cuda { \
  inline namespace emulated {
#define ALIBI_LANES_END \
  }                     \
  }

// GCC's longjmp switches without a system call. Sanitizers must see the switch, and clang's keeps too few registers.
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALIBI_SLOW_FIBERS 1
#else
#define ALIBI_SLOW_FIBERS 0
#endif

ALIBI_LANES_BEGIN

constexpr int warp_lanes = 32;

[[noreturn]] inline void broken(const char* what) {
  std::fprintf(stderr, "emulated lanes: %s\n", what);
  std::abort();
}

/// A thread of the block.
struct Fiber {
  static constexpr size_t stack_bytes = size_t{128} << 10;

  struct Copy {
    uint32_t address;
    int bytes;
    const void* from;  ///< null: zeros
  };

  ucontext_t context;
  void* at[5];
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(stack_bytes);
  bool started = false, done = false;
  const int* watched = nullptr;  ///< it waits until this is no longer `seen`
  int seen = 0;
  void* operands = nullptr;                ///< of what its warp does together
  std::vector<std::vector<Copy>> pending;  ///< groups of copies; the last is still open
};

/// The block of threads that is running.
class Block {
 public:
  static Block& here() {
    static thread_local Block block;
    return block;
  }

  /// Blocks and threads run from the last to the first. Results must not depend on it.
  bool backwards = false;

  template <class Body>
  void run(int64_t blocks, const typename Body::Arguments& arguments) {
    for (int64_t i = 0; i < blocks; ++i) {
      index_ = static_cast<int>(backwards ? blocks - 1 - i : i);
      body_ = [](const void* pointer) { Body::run(*static_cast<const typename Body::Arguments*>(pointer)); };
      arguments_ = &arguments;
      run_one(Body::threads, Body::shared_bytes);
    }
  }

  int thread() const { return current_; }
  int index() const { return index_; }

  unsigned char* shared(uint32_t address, size_t bytes, size_t alignment) {
    if (address % alignment != 0) broken("an address in shared memory is not aligned");
    if (address + bytes > shared_.size()) broken("an address outside of the block's shared memory");
    return shared_.data() + address;
  }

  void copy(uint32_t address, const void* from, int bytes) {
    std::memset(shared(address, static_cast<size_t>(bytes), static_cast<size_t>(bytes)), 0xff,
                static_cast<size_t>(bytes));
    if (reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(bytes) != 0)
      broken("a copy's source is not aligned");
    fiber().pending.back().push_back({address, bytes, from});
  }
  void commit() { fiber().pending.emplace_back(); }
  void wait(size_t left) {
    auto& pending = fiber().pending;
    while (pending.size() > left + 1) {
      for (const Fiber::Copy& copy : pending.front()) {
        unsigned char* const to =
            shared(copy.address, static_cast<size_t>(copy.bytes), static_cast<size_t>(copy.bytes));
        if (copy.from == nullptr) {
          std::memset(to, 0, static_cast<size_t>(copy.bytes));
        } else {
          std::memcpy(to, copy.from, static_cast<size_t>(copy.bytes));
        }
      }
      pending.erase(pending.begin());
    }
  }

  /// When all lanes of the warp have arrived, with operands of one type, calls `act` with those of lanes 0 to 31.
  template <class Operands, class Act>
  void together(Operands& mine, const Act& act) {
    static const char kind = 0;  // of its own for each type
    Gathering& warp = warps_[static_cast<size_t>(current_ / warp_lanes)];
    if (warp.arrived == 0) warp.kind = &kind;
    if (warp.kind != &kind) broken("lanes of a warp do different things");
    fiber().operands = &mine;
    if (++warp.arrived < warp_lanes) return wait_for(warp.generation);
    std::array<Operands*, warp_lanes> all;
    const int first = current_ / warp_lanes * warp_lanes;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      all[static_cast<size_t>(lane)] = static_cast<Operands*>(fibers_[static_cast<size_t>(first + lane)]->operands);
    }
    act(all);
    warp.arrived = 0;
    ++warp.generation;
  }

  bool barrier(bool yes) {
    if (block_.arrived == 0) all_ = true;
    all_ = all_ && yes;
    if (++block_.arrived < threads_) {
      wait_for(block_.generation);
    } else {
      agreed_ = all_;
      block_.arrived = 0;
      ++block_.generation;
    }
    return agreed_;
  }

 private:
  struct Gathering {
    int arrived = 0, generation = 0;
    const void* kind = nullptr;
  };

  Fiber& fiber() { return *fibers_[static_cast<size_t>(current_)]; }

  void run_one(int threads, int shared_bytes) {
    threads_ = threads;
    while (fibers_.size() < static_cast<size_t>(threads)) fibers_.push_back(std::make_unique<Fiber>());
    warps_.assign(static_cast<size_t>(threads / warp_lanes), {});
    block_ = {};
    shared_.assign(static_cast<size_t>(shared_bytes), 0xff);
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      fiber.started = fiber.done = false;
      fiber.watched = nullptr;
      fiber.pending.assign(1, {});
      ::getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = Fiber::stack_bytes;
      fiber.context.uc_link = nullptr;
      ::makecontext(&fiber.context, begin, 0);
    }
    left_ = threads;
    current_ = backwards ? threads - 1 : 0;
    fiber().started = true;
    ::swapcontext(&home_, &fiber().context);
  }

  static void begin() {
    Block& block = here();
    block.body_(block.arguments_);
    block.fiber().done = true;
    if (--block.left_ == 0) ::setcontext(&block.home_);
    block.next();
  }

  void wait_for(const int& generation) {
    fiber().watched = &generation;
    fiber().seen = generation;
    next();
  }

  /// Runs the next thread that can continue.
  void next() {
    Fiber& from = fiber();
    for (int tries = 0; tries < threads_; ++tries) {
      current_ = (current_ + (backwards ? threads_ - 1 : 1)) % threads_;
      Fiber& to = fiber();
      if (to.done || (to.watched != nullptr && *to.watched == to.seen)) continue;
      to.watched = nullptr;
      if (&to != &from) exchange(from, to);
      return;
    }
    broken("every thread waits");
  }

#if ALIBI_SLOW_FIBERS
  static void exchange(Fiber& from, Fiber& to) {
    to.started = true;
    ::swapcontext(&from.context, &to.context);
  }
#else
  [[gnu::noinline]] static void jump(void** to) { __builtin_longjmp(to, 1); }
  [[gnu::noinline]] static void exchange(Fiber& from, Fiber& to) {
    if (__builtin_setjmp(from.at) != 0) return;
    if (to.started) jump(to.at);
    to.started = true;
    ::setcontext(&to.context);
  }
#endif

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Gathering> warps_;
  Gathering block_;
  std::vector<unsigned char> shared_;
  ucontext_t home_;
  void (*body_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  int threads_ = 0, current_ = 0, index_ = 0, left_ = 0;
  bool all_ = true, agreed_ = true;
};

inline int thread_index() { return Block::here().thread(); }
inline int block_index() { return Block::here().index(); }
inline int thread_index_here() { return thread_index(); }
inline void block_sync() { Block::here().barrier(true); }
inline bool block_all(bool yes) { return Block::here().barrier(yes); }

inline void warp_sync() {
  struct Nothing {
  } nothing;
  Block::here().together(nothing, [](const auto&) {});
}
inline uint32_t warp_votes(bool yes) {
  struct Vote {
    bool yes;
    uint32_t votes;
  } mine = {yes, 0};
  Block::here().together(mine, [](const auto& lanes) {
    uint32_t votes = 0;
    for (size_t i = 0; i < lanes.size(); ++i) votes |= static_cast<uint32_t>(lanes[i]->yes) << i;
    for (Vote* lane : lanes) lane->votes = votes;
  });
  return mine.votes;
}
inline int lowest_bit(uint32_t bits) { return __builtin_ctz(bits); }
inline float lane_xor(float value, int bits) {
  struct Shuffle {
    float value, other;
    int bits;
  } mine = {value, 0, bits};
  Block::here().together(mine, [](const auto& lanes) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i]->other = lanes[i ^ static_cast<size_t>(lanes[i]->bits)]->value;
    }
  });
  return mine.other;
}

template <class V>
V shared_load(uint32_t address) {
  V value;
  std::memcpy(&value, Block::here().shared(address, sizeof(V), alignof(V)), sizeof(V));
  return value;
}
template <class V>
void shared_store(uint32_t address, const V& value) {
  std::memcpy(Block::here().shared(address, sizeof(V), alignof(V)), &value, sizeof(V));
}

inline void copy16(uint32_t address, const void* from, bool real) {
  Block::here().copy(address, real ? from : nullptr, 16);
}
inline void copy8(uint32_t address, const void* from, bool real) {
  Block::here().copy(address, real ? from : nullptr, 8);
}
inline void copies_commit() { Block::here().commit(); }
template <int left>
void copies_wait() {
  Block::here().wait(left);
}

// Blocks run one after the other, so a count that has not been reached never will be.
inline int take_ticket(int32_t* next) { return (*next)++; }
inline void wait_for_count(const int32_t* count, int value) {
  if (*count != value) broken("a block waits for one that has not run");
}
inline void raise_count(int32_t* count) { ++*count; }
template <int n>
void store_for_others(float* to, const float (&x)[n][4]) {
  for (int i = 0; i < n; ++i) std::memcpy(to + i * 128, x[i], sizeof(x[i]));
}
template <int n>
void load_from_others(float (&x)[n][4], const float* from) {
  for (int i = 0; i < n; ++i) std::memcpy(x[i], from + i * 128, sizeof(x[i]));
}

template <bool transposed>
void load_matrices(uint32_t (&x)[4], uint32_t address) {
  struct Load {
    uint32_t* x;
    uint32_t address;
  } mine = {x, address};
  Block::here().together(mine, [](const auto& lanes) {
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (size_t matrix = 0; matrix < 4; ++matrix) {
        uint32_t both = 0;
        for (size_t e = 0; e < 2; ++e) {
          const size_t major = lane / 4, minor = lane % 4 * 2 + e;
          const size_t row = transposed ? minor : major, column = transposed ? major : minor;
          uint16_t value;
          std::memcpy(&value, Block::here().shared(lanes[matrix * 8 + row]->address, 16, 16) + 2 * column, 2);
          both |= static_cast<uint32_t>(value) << (16 * e);
        }
        lanes[lane]->x[matrix] = both;
      }
    }
  });
}
inline void load4(uint32_t (&x)[4], uint32_t address) { load_matrices<false>(x, address); }
inline void load4_transposed(uint32_t (&x)[4], uint32_t address) { load_matrices<true>(x, address); }

template <Type type>
float unpack(uint32_t both, int which) {
  const auto bits = static_cast<uint16_t>(both >> (16 * which));
  if constexpr (type == Type::bfloat16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  } else {
    float16 value;
    value.bits = bits;
    return static_cast<float>(value);
  }
}
template <Type type>
uint32_t pack(float low, float high) {
  using Value = std::conditional_t<type == Type::bfloat16, alibi::bfloat16, alibi::float16>;
  return static_cast<uint32_t>(Value(low).bits) | static_cast<uint32_t>(Value(high).bits) << 16;
}

template <Type type>
void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Product {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } mine = {d, a, {b0, b1}};
  Block::here().together(mine, [](const auto& lanes) {
    float left[16][16], right[16][8];
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const Product& part = *lanes[lane];
      const size_t major = lane / 4, minor = lane % 4 * 2;
      for (int e = 0; e < 2; ++e) {
        const size_t column = minor + static_cast<size_t>(e);
        for (size_t r = 0; r < 4; ++r) left[major + r % 2 * 8][column + r / 2 * 8] = unpack<type>(part.a[r], e);
        for (size_t r = 0; r < 2; ++r) right[column + r * 8][major] = unpack<type>(part.b[r], e);
      }
    }
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (size_t r = 0; r < 4; ++r) {
        const size_t row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
        float sum = lanes[lane]->d[r];
        for (size_t k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
        lanes[lane]->d[r] = sum;
      }
    }
  });
}

/// On a GPU the relative error is up to 2^-22, and results below 2^-126 are 0.
inline float power_of_2(float x) { return x < -126 ? 0.0f : std::exp2(x); }

/// `stream` is only used on a GPU.
template <class Body>
int launch(int64_t blocks, const typename Body::Arguments& arguments, void* /*stream*/) {
  Block::here().run<Body>(blocks, arguments);
  return 0;
}

ALIBI_LANES_END
