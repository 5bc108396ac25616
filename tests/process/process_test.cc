// Threads and processes: the first use from several threads at once, changes of the number of threads while others
// compute, children made by fork(), and main() returning in the midst of it. Every try is a process of its own.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "alibi/alibi.h"
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/products.h"

extern char** environ;

namespace alibi {
namespace {

using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool has_address_sanitizer = true;
constexpr bool has_thread_sanitizer = false;
#elif defined(__has_feature)
constexpr bool has_address_sanitizer = __has_feature(address_sanitizer);
constexpr bool has_thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool has_address_sanitizer = false;
constexpr bool has_thread_sanitizer = false;
#endif

Tensor numbers(Shape shape, uint64_t seed) {
  Tensor tensor = Tensor::empty(std::move(shape));
  float* values = tensor.data<float>();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    values[i] = static_cast<float>(seed >> 40) / static_cast<float>(1 << 23) - 1;
  }
  return tensor;
}

/// Attention with several tasks.
std::vector<float> attend() {
  const Tensor q = numbers({1, 96, 4, 16}, 1), k = numbers({1, 96, 4, 16}, 2), v = numbers({1, 96, 4, 16}, 3);
  Tensor out({1, 96, 4, 16});
  AttentionOptions options;
  options.alibi_slopes = slopes(4);
  attention(q, k, v, options, out);
  return out.to_floats();
}

/// A model: matrix products, norms, attention, in float32 and bfloat16.
std::vector<float> predict() {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 1;
  LanguageModel model(config, 1);
  std::vector<int32_t> bytes(64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int32_t>(97 + i % 26);
  const Tensor ids = Tensor::from(std::span<const int32_t>(bytes), {1, 64});
  std::vector<float> logits = model.logits(ids).to_floats();
  model.set_precision(Precision::bf16);
  const std::vector<float> rounded = model.logits(ids).to_floats();
  logits.insert(logits.end(), rounded.begin(), rounded.end());
  return logits;
}

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  ::_exit(1);
}

/// All threads begin at the same moment.
void at_once(int count, const std::function<void(int)>& body) {
  std::atomic<int> waiting{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void first_use(const std::function<std::vector<float>()>& compute) {
  std::vector<std::vector<float>> found(4);
  at_once(4, [&](int i) { found[static_cast<size_t>(i)] = compute(); });
  const std::vector<float> expected = compute();
  for (const auto& values : found) require(values == expected, "threads differ");
}

void first_use_of_settings() {
  std::vector<float> found;
  at_once(4, [&](int i) {
    if (i == 0) set_threads(3);
    if (i == 1) require(threads() >= 1 && !available_isas().empty(), "no threads or no instruction set");
    if (i == 2) require(isa() == best_isa(), "another instruction set than the best");
    if (i == 3) found = attend();
  });
  require(threads() == 3, "the number of threads was lost");
  require(found == attend(), "bits differ");
}

void threads_change_while_others_compute() {
  const std::vector<float> attended = attend(), predicted = predict();
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    for (int i = 0; !stop.load(); ++i) set_threads(1 + i % 4);
  });
  at_once(4, [&](int i) {
    for (int round = 0; round < (i % 2 == 0 ? 40 : 4); ++round) {
      require(i % 2 == 0 ? attend() == attended : predict() == predicted, "bits differ");
    }
  });
  stop.store(true);
  changes.join();
}

void tasks_that_throw_in_many_threads() {
  at_once(4, [](int) {
    for (int round = 0; round < 50; ++round) {
      std::string message;
      try {
        core::parallel_for(64, [](int64_t task) {
          if (task % 7 == 5) throw Error("task " + std::to_string(task));
        });
      } catch (const Error& error) {
        message = error.what();
      }
      require(message == "task 5", "not the error of the first task that threw");
    }
  });
}

void expect_child_to(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  require(child >= 0, "fork failed");
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  require(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
}

void children() {
  const std::vector<float> attended = attend(), predicted = predict();
  for (int round = 0; round < 3; ++round) {
    expect_child_to([&] {
      expect_child_to([&] { return attend() == attended; });  // and a child of it
      return attend() == attended && predict() == predicted;
    });
    require(attend() == attended, "bits differ in the parent");
  }
  // A task may fork: the child is in the midst of it, and has one thread.
  core::parallel_for(4, [&](int64_t) { expect_child_to([&] { return attend() == attended; }); });
}

void children_of_a_process_that_computes() {
  const std::vector<float> attended = attend();
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) require(attend() == attended, "bits differ");
  });
  for (int round = 0; round < 10; ++round) expect_child_to([&] { return attend() == attended; });
  stop.store(true);
  busy.join();
}

void main_returns_while_a_thread_computes() {
  static std::atomic<int> rounds{0};
  std::thread([] {
    for (;;) {
      attend();
      predict();
      rounds.fetch_add(1);
    }
  }).detach();
  while (rounds.load() < 2) std::this_thread::yield();
}

/// As a server would: a static object, older than the first use, computes until the process takes it down, which comes
/// after the exit handlers that the library and oneDNN registered. Its thread must not wait for the end of the process.
class ComputesToTheEnd {
 public:
  void start() {
    thread_ = std::thread([this] {
      const std::vector<float> expected = predict();
      while (!stop_.load()) {
        const std::vector<float> found = predict();  // at the end in another order, without oneDNN
        for (size_t i = 0; i < found.size(); ++i) require(std::abs(found[i] - expected[i]) < 0.05f, "values differ");
        rounds_.fetch_add(1);
      }
    });
  }
  void wait(int rounds) const {
    const int before = rounds_.load();
    while (rounds_.load() < before + rounds) std::this_thread::yield();
  }
  ~ComputesToTheEnd() {
    if (!thread_.joinable()) return;
    wait(2);  // at least one of them begins after that
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

void a_static_object_computes_to_the_end() {
  static ComputesToTheEnd server;
  server.start();
  server.wait(2);
}

/// Handlers of signals run on the stack of whatever they interrupt.
void signals_while_computing() {
  set_threads(1);  // the one that gets them
  const auto trained = [] {
    std::vector<int32_t> bytes(4096);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int32_t>(97 + i % 26);
    TrainOptions options;
    options.train_length = 128;
    options.train_tokens = 4 * 2048;
    options.batch_tokens = 2048;
    LanguageModelConfig config = preset("tiny");
    config.transformer.layers = 2;
    LanguageModel model(config, 1);
    return train(model, bytes, options).loss;
  };
  const std::vector<float> expected = trained();
  static std::atomic<int> signals{0};
  struct sigaction action {};
  action.sa_handler = [](int) { signals.fetch_add(1); };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 100}, {0, 100}}, never = {};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (int round = 0; round < 2; ++round) require(trained() == expected, "bits differ");
  ::setitimer(ITIMER_REAL, &never, nullptr);
  require(signals.load() > 50, "the signals did not come");
}

/// ALIBI_ISA=avx2 in the environment: a lesser machine, for oneDNN too. bfloat16 models run there all the same.
void lesser_machine() {
  if (core::isa_limit() != Isa::avx2) {
    set_isa(best_isa());  // throws what is wrong with it
    require(false, "ALIBI_ISA=avx2 is not heeded");
  }
  require(best_isa() == Isa::avx2 && available_isas().size() == 2, "more than AVX2 is offered");
  const std::vector<float> predicted = predict();
  // OpenBLAS cannot be limited.
  const std::string products = nn::product_provider().description();
  require(products.starts_with("OpenBLAS") || products.ends_with("avx2"), "oneDNN uses more than AVX2");
  require(!nn::product_provider().has_products(DType::bfloat16), "bfloat16 products on AVX2");
  // In float32 and in bfloat16, one after the other.
  float largest = 0;
  for (size_t i = 0; i < predicted.size() / 2; ++i) {
    largest = std::max(largest, std::abs(predicted[i] - predicted[i + predicted.size() / 2]));
  }
  require(largest > 0 && largest < 0.1f, "bfloat16 is not near float32");
}

const std::map<std::string, std::function<void()>>& scenarios() {
  static const auto* const all = new std::map<std::string, std::function<void()>>{
      {"first_use_of_attention", [] { first_use(attend); }},
      {"first_use_of_a_model", [] { first_use(predict); }},
      {"first_use_of_settings", first_use_of_settings},
      {"threads_change_while_others_compute", threads_change_while_others_compute},
      {"tasks_that_throw_in_many_threads", tasks_that_throw_in_many_threads},
      {"children", children},
      {"children_of_a_process_that_computes", children_of_a_process_that_computes},
      {"signals_while_computing", signals_while_computing},
      {"main_returns_while_a_thread_computes", main_returns_while_a_thread_computes},
      {"a_static_object_computes_to_the_end", a_static_object_computes_to_the_end},
      {"lesser_machine", lesser_machine},
  };
  return *all;
}

/// Runs the scenario in a process of its own, several times. One that hangs is ended. Sanitizers, under which a process
/// takes seconds, see a fault whether or not it changes the result, so a quarter of the processes is enough for them.
void run_processes(const std::string& scenario, int count) {
  if (has_thread_sanitizer || has_address_sanitizer) count = (count + 3) / 4;
  for (int i = 0; i < count; ++i) {
    std::string program = "/proc/self/exe", argument = scenario;
    char* arguments[] = {program.data(), argument.data(), nullptr};
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // what hangs is ended with its children
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, &attributes, arguments, environ), 0);
    ::posix_spawnattr_destroy(&attributes);
    const Clock::time_point end = Clock::now() + std::chrono::seconds(180);  // also on a busy machine
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > end) {
        ::kill(-child, SIGKILL);
        ::waitpid(child, &status, 0);
        FAIL() << scenario << " hangs (process " << i << ")";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ASSERT_TRUE(WIFEXITED(status)) << scenario << " ended by signal " << WTERMSIG(status) << " (process " << i << ")";
    ASSERT_EQ(WEXITSTATUS(status), 0) << scenario << " (process " << i << ")";
  }
}

TEST(Process, FirstUseOfAttention) { run_processes("first_use_of_attention", 20); }
TEST(Process, FirstUseOfAModel) { run_processes("first_use_of_a_model", 10); }
TEST(Process, FirstUseOfSettings) { run_processes("first_use_of_settings", 20); }
TEST(Process, ThreadsChangeWhileOthersCompute) { run_processes("threads_change_while_others_compute", 2); }
TEST(Process, TasksThatThrowInManyThreads) { run_processes("tasks_that_throw_in_many_threads", 3); }
TEST(Process, Children) { run_processes("children", 3); }
TEST(Process, ChildrenOfAProcessThatComputes) {
  if (has_address_sanitizer) GTEST_SKIP() << "its allocator may be locked by the thread that the child does not have";
  run_processes("children_of_a_process_that_computes", 3);
}
TEST(Process, AlibiIsaMakesALesserMachine) {
  if (best_isa() < Isa::avx2) GTEST_SKIP() << "this CPU has no AVX2";
  const char* before = std::getenv("ALIBI_ISA");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("ALIBI_ISA", "avx2", 1);
  run_processes("lesser_machine", 1);
  before == nullptr ? ::unsetenv("ALIBI_ISA") : ::setenv("ALIBI_ISA", kept.c_str(), 1);
}
TEST(Process, SignalsWhileComputing) { run_processes("signals_while_computing", 1); }
TEST(Process, MainReturnsWhileAThreadComputes) { run_processes("main_returns_while_a_thread_computes", 20); }
TEST(Process, AStaticObjectComputesToTheEnd) { run_processes("a_static_object_computes_to_the_end", 5); }

}  // namespace
}  // namespace alibi

int main(int argc, char** argv) {
  if (argc == 2 && alibi::scenarios().contains(argv[1])) {
    alibi::scenarios().at(argv[1])();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
