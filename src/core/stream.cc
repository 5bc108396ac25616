#include "alibi/stream.h"

namespace alibi {
namespace {

thread_local void* stream_of_thread = nullptr;

}  // namespace

void* stream() { return stream_of_thread; }

UseStream::UseStream(void* stream) : before_(stream_of_thread) { stream_of_thread = stream; }
UseStream::~UseStream() { stream_of_thread = before_; }

}  // namespace alibi
