/* What a shared library of alibi shows: everything else in it is compiled as hidden. C11 and C++. */
#ifndef ALIBI_EXPORT_H_
#define ALIBI_EXPORT_H_

#if defined(__GNUC__)
#define ALIBI_API __attribute__((visibility("default")))
#else
#define ALIBI_API
#endif

#endif
