// Everything. The pieces are small headers of their own.
#pragma once

#include "alibi/attention.h"
#include "alibi/compare.h"
#include "alibi/enum_names.h"
#include "alibi/error.h"
#include "alibi/evaluate.h"
#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "alibi/options.h"
#include "alibi/results.h"
#include "alibi/runtime.h"
#include "alibi/tensor.h"
#include "alibi/tokenizer.h"
#include "alibi/train.h"
#include "alibi/train_options.h"
#include "alibi/transformer.h"
#include "alibi/version.h"
