// The way of the library and its tests to the private state of public classes (KvCache, Context and others). Programs
// see neither the state nor this header.
#pragma once

namespace alibi::core {

/// A friend of each class that has a private `State`.
struct Access {
  template <class Public>
  struct Of {
    using State = typename Public::State;
    static State& state(const Public& object) { return *object.state_; }
  };
};

template <class Public>
using StateOf = typename Access::Of<Public>::State;

/// The state of an object that was not moved from; const if the object is.
template <class Public>
StateOf<Public>& state_of(Public& object) {
  return Access::Of<Public>::state(object);
}
template <class Public>
const StateOf<Public>& state_of(const Public& object) {
  return Access::Of<Public>::state(object);
}

}  // namespace alibi::core
