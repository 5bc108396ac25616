// Everything. The pieces are small headers of their own.
#pragma once

#include "alibi/attention.h"
#include "alibi/error.h"
#include "alibi/runtime.h"
#include "alibi/tensor.h"
#include "alibi/version.h"
