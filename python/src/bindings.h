// The parts of the module _core.
#pragma once

#include <nanobind/nanobind.h>

namespace alibi::python {

void bind_lock(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_positions(nanobind::module_& m);
void bind_cache(nanobind::module_& m);
// models/, which is left out of a build of the operator alone
void bind_model(nanobind::module_& m);
void bind_loglikelihood(nanobind::module_& m);
void bind_engine(nanobind::module_& m);
void bind_encoder(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);
void bind_training(nanobind::module_& m);
void bind_compare(nanobind::module_& m);

}  // namespace alibi::python
