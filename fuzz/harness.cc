#include "harness.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "alibi/error.h"
#include "alibi/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#define ALIBI_SEES_MALLOC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALIBI_SEES_MALLOC
#endif
#endif
#ifdef ALIBI_SEES_MALLOC
#include <sanitizer/allocator_interface.h>
#endif

namespace alibi::fuzz {
namespace {

// What JSON becomes takes up to 52 times the text ("{}," in a header of safetensors); whole readers of small files take
// some 300 KB.
constexpr int64_t kBytesPerByte = 64;
constexpr int64_t kBytesAtLeast = int64_t{1} << 20;

/// Bytes from malloc, alive and at most. Stays 0 without the address sanitizer, which tells.
struct Heap {
  std::atomic<int64_t> alive{0}, peak{0};

  Heap() {
#ifdef ALIBI_SEES_MALLOC
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, size_t size) { heap().add(static_cast<int64_t>(size)); },
        [](const volatile void* memory) {
          heap().add(-static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory))));
        });
#endif
  }
  static Heap& heap() {
    static Heap one;
    return one;
  }
  void add(int64_t bytes) {
    const int64_t now = alive += bytes;
    if (now > peak) peak = now;  // readers compute with one thread here
  }
};

void check_message(const Error& error, const std::filesystem::path& path) {
  const std::string_view message = error.what();
  const bool blames_caller = dynamic_cast<const UsageError*>(&error) != nullptr;
  const bool names_file = message.find(path.string()) != std::string_view::npos;
  if (blames_caller || !names_file || message[0] != '[') std::fprintf(stderr, "message: %s\n", error.what());
  demand(message.starts_with('['), "an error begins with the operation");
  demand(!blames_caller, "what a file says is not the fault of the caller");
  demand(names_file, "an error names the file");
}

}  // namespace

bool takes(std::string_view input, const std::filesystem::path& path, const std::function<void()>& read) {
  static Heap& heap = (set_threads(1), Heap::heap());
  const int64_t heap_before = heap.alive, tensors_before = tensor_bytes();
  heap.peak = heap_before;
  reset_peak_tensor_bytes();
  bool taken = true;
  try {
    read();
  } catch (const Error& error) {
    taken = false;
    check_message(error, path);
  }
  const int64_t held = std::max(heap.peak - heap_before, peak_tensor_bytes() - tensors_before);
  const int64_t most = kBytesPerByte * static_cast<int64_t>(input.size()) + kBytesAtLeast;
  if (held > most) {
    std::fprintf(stderr, "held %lld bytes for an input of %zu\n", static_cast<long long>(held), input.size());
  }
  demand(held <= most, "memory follows from the size of the input");
  return taken;
}

void demand(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

Choice choose(std::string_view input, unsigned kinds) {
  if (input.empty()) return {};
  return {static_cast<unsigned char>(input.front()) % kinds, input.substr(1)};
}

std::string chosen(unsigned kind, std::string_view content) {
  return std::string(1, static_cast<char>(kind)).append(content);
}

Files files_of(const std::filesystem::path& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().lexically_relative(folder).string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  demand(!file.fail(), "a file of the test can be written");
}

void write_files(const std::filesystem::path& folder, const Files& files) {
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_file(folder / name, content);
  }
}

}  // namespace alibi::fuzz
