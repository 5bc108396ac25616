// A group whose ranks are threads of one process, for tests.
#pragma once

#include <functional>

#include "ranks/group.h"

namespace alibi::ranks {

/// Calls body(group) in one thread for each rank and waits for all. If ranks throw, the first exception is rethrown
/// here. The transfers of the other ranks then throw, so that no rank waits forever.
void run_as_threads(int ranks, const std::function<void(Group&)>& body);

}  // namespace alibi::ranks
