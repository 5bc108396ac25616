#include "device/fake_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "alibi/stream.h"
#include "attention/kernel_state.h"
#include "core/check.h"

namespace alibi::test {
namespace {

std::atomic<int64_t> calls_so_far{0};
std::atomic<void*> stream_of_last_call{nullptr};

/// The blocks of the device: where the program sees nothing, and where its bytes are.
class Blocks {
 public:
  std::shared_ptr<void> make(size_t bytes) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t size = (bytes + page) / page * page;
    const int file = ::memfd_create("fake device", 0);
    check(file >= 0 && ::ftruncate(file, static_cast<off_t>(size)) == 0, "[fake device] no memory");
    void* const closed = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
    void* const open = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    check(closed != MAP_FAILED && open != MAP_FAILED, "[fake device] no addresses");
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(closed)] = {static_cast<std::byte*>(open), size};
    return {closed, [this](void* block) { drop(static_cast<std::byte*>(block)); }};
  }

  /// Where the bytes of an address are.
  std::byte* open(const void* address) {
    const auto* const at = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(const_cast<std::byte*>(at));
    check(after != blocks_.begin(), "[fake device] an address of another device");
    const auto& [closed, block] = *std::prev(after);
    check(at <= closed + block.size, "[fake device] an address of another device");
    return block.open + (at - closed);
  }

 private:
  struct Block {
    std::byte* open;
    size_t size;
  };

  void drop(std::byte* closed) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(closed);
    ::munmap(found->second.open, found->second.size);
    ::munmap(closed, found->second.size);
    blocks_.erase(found);
  }

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
};

Blocks& blocks() {
  static auto* const all = new Blocks;  // tensors may outlive it
  return *all;
}

Tensor seen_by_cpu(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == Device::cpu) return tensor;
  return Tensor::view(blocks().open(tensor.raw()), tensor.shape(), tensor.dtype(), tensor.strides());
}

/// A problem of attention as the CPU's kernel sees it.
void show(kernels::Problem& problem) {
  for (kernels::TensorView* view :
       {&problem.q, &problem.k, &problem.v, &problem.out, &problem.dout, &problem.dq, &problem.dk, &problem.dv}) {
    if (view->data != nullptr) view->data = blocks().open(view->data);
  }
  problem.device = Device::cpu;
}

AttentionState seen_by_cpu(const AttentionState& state) {
  AttentionState seen{seen_by_cpu(state.lse), state.stats, {}};
  core::state_of(seen.kernel) = core::state_of(state.kernel);
  core::state_of(seen.kernel).lse = seen_by_cpu(core::state_of(state.kernel).lse);
  return seen;
}

const kernels::Kernel fake_kernel = {
    .supports = [](const kernels::Problem&) { return true; },
    .forward =
        [](const kernels::Problem& there, AttentionState* state) {
          ++calls_so_far;
          stream_of_last_call = stream();
          kernels::Problem problem = there;
          show(problem);
          const auto forward = [&](AttentionState* of) {
            return kernels::run_on_cpu(problem, [&](const kernels::Kernel& cpu) { return cpu.forward(problem, of); });
          };
          if (state == nullptr) return forward(nullptr);
          AttentionState seen = seen_by_cpu(*state);
          const bool done = forward(&seen);
          const Tensor lse = core::state_of(state->kernel).lse;
          state->stats = seen.stats;
          core::state_of(state->kernel) = core::state_of(seen.kernel);
          core::state_of(state->kernel).lse = lse;
          return done;
        },
    .backward =
        [](const kernels::Problem& there, const AttentionState& state, const kernels::BiasSums& sums_there) {
          ++calls_so_far;
          kernels::Problem problem = there;
          show(problem);
          kernels::BiasSums sums = sums_there;
          for (float** sum : {&sums.dtable, &sums.dslopes}) {
            if (*sum != nullptr) *sum = reinterpret_cast<float*>(blocks().open(*sum));
          }
          const AttentionState seen = seen_by_cpu(state);
          return kernels::run_on_cpu(problem,
                                     [&](const kernels::Kernel& cpu) { return cpu.backward(problem, seen, sums); });
        },
};

}  // namespace

FakeDevice::FakeDevice()
    : memory_before_(core::device_memories().set(Device::cuda, this)),
      kernel_before_(kernels::device_kernels().set(Device::cuda, &fake_kernel)) {}

FakeDevice::~FakeDevice() {
  core::device_memories().set(Device::cuda, memory_before_);
  kernels::device_kernels().set(Device::cuda, kernel_before_);
}

int64_t FakeDevice::calls() { return calls_so_far; }
void* FakeDevice::last_stream() { return stream_of_last_call; }

std::shared_ptr<void> FakeDevice::allocate(size_t bytes, bool zeros) const {
  std::shared_ptr<void> block = blocks().make(bytes);
  if (!zeros) std::memset(blocks().open(block.get()), 0xff, bytes);  // NaN
  return block;
}

void FakeDevice::copy_from_cpu(void* to, const void* from, size_t bytes) const {
  std::memcpy(blocks().open(to), from, bytes);
}

void FakeDevice::copy_to_cpu(void* to, const void* from, size_t bytes) const {
  std::memcpy(to, blocks().open(from), bytes);
}

void FakeDevice::fill(Tensor& tensor, float value) const { seen_by_cpu(tensor).fill(value); }

void FakeDevice::copy(const Tensor& from, Tensor& to) const { seen_by_cpu(to).copy_from(seen_by_cpu(from)); }

}  // namespace alibi::test
