// The parts of the module _core.
#pragma once

#include <nanobind/nanobind.h>

namespace alibi::python {

void bind_attention(nanobind::module_& m);
void bind_cache(nanobind::module_& m);

}  // namespace alibi::python
