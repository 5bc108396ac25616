/* What the C programs among the tests expect; main() returns non-zero if there were failures. */
#ifndef ALIBI_TESTS_CAPI_EXPECT_H_
#define ALIBI_TESTS_CAPI_EXPECT_H_

#include <stdio.h>

#include "alibi/c.h"

static int failures = 0;

#define EXPECT(condition)                                                                                  \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, alibi_last_error()); \
      ++failures;                                                                                          \
    }                                                                                                      \
  } while (0)

#endif
