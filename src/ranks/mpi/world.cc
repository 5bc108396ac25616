#include "ranks/world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "core/check.h"
#include "ranks/mpi/watchdog.h"

namespace alibi::ranks {
namespace {

void check_mpi(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("[ranks] {} failed: {}", operation, std::string_view(text, static_cast<size_t>(length)));
}

class MpiTransfer : public Transfer {
 public:
  template <class Start>
  MpiTransfer(size_t bytes, const Start& start) {
    constexpr size_t most = size_t{1} << 30;  // MPI counts in int
    for (size_t begin = 0; begin < bytes; begin += most) {
      start(begin, static_cast<int>(std::min(most, bytes - begin)), &requests_.emplace_back(MPI_REQUEST_NULL));
    }
  }

  bool is_done() override {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
              "a transfer");
    return done != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
};

/// Seconds of silence after which a rank counts as lost. A dead link must be noticed within a minute.
double longest_silence() {
  constexpr double usual = 50;
  const char* text = std::getenv("ALIBI_RANKS_TIMEOUT");
  const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  return seconds > 0 ? seconds : usual;
}

class MpiWorld final : public World {
 public:
  MpiWorld() {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    check_usage(
        size_ == launched_ranks(),
        "[ranks] {} ranks were started together, but MPI connects {}: alibi was built with another MPI than that "
        "of mpirun; use the mpirun of the same MPI (mpirun.openmpi or mpirun.mpich on Debian)",
        launched_ranks(), size_);
    check(provided >= MPI_THREAD_MULTIPLE, "[ranks] this MPI cannot be used by several threads (MPI_THREAD_MULTIPLE)");
    char host[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    hosts_.resize(static_cast<size_t>(size_) * sizeof host);
    check_mpi(MPI_Allgather(host, sizeof host, MPI_CHAR, hosts_.data(), sizeof host, MPI_CHAR, MPI_COMM_WORLD),
              "MPI_Allgather");
    MPI_Comm here = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
              "MPI_Comm_split_type");
    MPI_Comm_size(here, &ranks_on_host_);
    MPI_Comm_free(&here);
    watchdog_.emplace(longest_silence(), [this](int rank, double seconds) { end_for(rank, seconds); });
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_host() const override { return ranks_on_host_; }
  std::string name_of(int rank) const override {
    return fmt::format("rank {} on {}", rank, hosts_.data() + static_cast<size_t>(rank) * MPI_MAX_PROCESSOR_NAME);
  }

  void finish() override {
    barrier(*this);
    watchdog_.reset();
    MPI_Finalize();
  }

  [[noreturn]] void abort(int code) override {
    std::fflush(nullptr);
    // After MPI_Abort, MPICH's launcher may end without reading what this process wrote.
    constexpr std::chrono::milliseconds until_read(250);
    std::this_thread::sleep_for(until_read);
    // MPI_Abort may wait for a host that is down.
    std::thread([code] { MPI_Abort(MPI_COMM_WORLD, code); }).detach();
    constexpr std::chrono::seconds enough(4);
    std::this_thread::sleep_for(enough);
    ::_exit(code);
  }

 protected:
  std::unique_ptr<Transfer> start_send(int to, int tag, std::span<const std::byte> data) override {
    return std::make_unique<MpiTransfer>(data.size(), [&](size_t begin, int count, MPI_Request* request) {
      check_mpi(MPI_Isend(data.data() + begin, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, request), "MPI_Isend");
    });
  }
  std::unique_ptr<Transfer> start_receive(int from, int tag, std::span<std::byte> data) override {
    return std::make_unique<MpiTransfer>(data.size(), [&](size_t begin, int count, MPI_Request* request) {
      check_mpi(MPI_Irecv(data.data() + begin, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, request), "MPI_Irecv");
    });
  }

 private:
  /// Called by the watchdog.
  void end_for(int rank, double seconds) {
    const std::string text =
        fmt::format("alibi: error: [ranks] {} heard nothing from {} for {:.0f} s, so its host or the link is down{}\n",
                    name_of(rank_), name_of(rank), seconds, advice());
    std::fwrite(text.data(), 1, text.size(), stderr);
    abort(1);
  }

  int rank_ = 0, size_ = 1, ranks_on_host_ = 1;
  std::vector<char> hosts_;
  std::optional<mpi::Watchdog> watchdog_;
};

}  // namespace

std::unique_ptr<World> join() { return launched_ranks() == 1 ? nullptr : std::make_unique<MpiWorld>(); }

}  // namespace alibi::ranks
