#include "ranks/mpi/watchdog.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace alibi::ranks::mpi {
namespace {

using Clock = std::chrono::steady_clock;

struct Peer {
  int rank;
  char sent = 0, heard = 0;
  MPI_Request sending = MPI_REQUEST_NULL, hearing = MPI_REQUEST_NULL;
  Clock::time_point last = Clock::now();
};

bool is_done(MPI_Request& request) {
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

}  // namespace

Watchdog::Watchdog(double limit, std::function<void(int, double)> on_silence)
    : limit_(limit), on_silence_(std::move(on_silence)) {
  MPI_Comm_dup(MPI_COMM_WORLD, &channel_);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Watchdog::~Watchdog() {
  thread_.request_stop();
  thread_.join();
  MPI_Comm_free(&channel_);
}

void Watchdog::watch(const std::stop_token& stop) {
  int here = 0, ranks = 1;
  MPI_Comm_rank(channel_, &here);
  MPI_Comm_size(channel_, &ranks);
  std::vector<std::unique_ptr<Peer>> peers;  // MPI keeps pointers to them
  for (int rank = 0; rank < ranks; ++rank) {
    if ((here == 0) == (rank == 0)) continue;
    peers.push_back(std::make_unique<Peer>(Peer{rank}));
    MPI_Irecv(&peers.back()->heard, 1, MPI_CHAR, rank, 0, channel_, &peers.back()->hearing);
  }
  const std::chrono::duration<double> between(limit_ / 16);
  constexpr std::chrono::milliseconds pause(100);
  Clock::time_point next = Clock::now();
  while (!stop.stop_requested()) {
    const Clock::time_point now = Clock::now();
    const bool sends = now >= next;
    if (sends) next = now + std::chrono::duration_cast<Clock::duration>(between);
    for (const std::unique_ptr<Peer>& peer : peers) {
      // A heartbeat that has not left yet is not followed by another one.
      if (is_done(peer->sending) && sends) MPI_Isend(&peer->sent, 1, MPI_CHAR, peer->rank, 0, channel_, &peer->sending);
      while (is_done(peer->hearing)) {
        peer->last = now;
        MPI_Irecv(&peer->heard, 1, MPI_CHAR, peer->rank, 0, channel_, &peer->hearing);
      }
      const double silent = std::chrono::duration<double>(now - peer->last).count();
      if (silent > limit_) return on_silence_(peer->rank, silent);
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, std::chrono::duration_cast<Clock::duration>(between)));
  }
  for (const std::unique_ptr<Peer>& peer : peers) {
    MPI_Cancel(&peer->hearing);
    MPI_Wait(&peer->hearing, MPI_STATUS_IGNORE);
    if (peer->sending != MPI_REQUEST_NULL) MPI_Request_free(&peer->sending);
  }
}

}  // namespace alibi::ranks::mpi
