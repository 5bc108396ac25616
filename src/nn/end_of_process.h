// The end of the process, while other threads compute.
#pragma once

namespace alibi::nn {

/// oneDNN frees code that it has generated when main() has returned, or exit() was called, whoever runs it. While one
/// of these lives and says that oneDNN is there, the end of the process waits.
class UseOfOneDnn {
 public:
  UseOfOneDnn();
  ~UseOfOneDnn();
  UseOfOneDnn(const UseOfOneDnn&) = delete;
  UseOfOneDnn& operator=(const UseOfOneDnn&) = delete;

  /// False once the process ends: what is asked of oneDNN must be done without it.
  bool is_there() const { return is_there_; }

 private:
  bool is_there_;
};

/// To be called when oneDNN has generated code of a kind it had not before. What ends with the process ends in the
/// opposite order of its beginning, so what waits for the users of that code must begin after it.
void wait_at_the_end_for_users();

}  // namespace alibi::nn
