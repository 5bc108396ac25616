# Debian's Zstandard package has no CMake files.
find_path(Zstandard_INCLUDE_DIR zstd.h)
find_library(Zstandard_LIBRARY zstd)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Zstandard REQUIRED_VARS Zstandard_LIBRARY Zstandard_INCLUDE_DIR)
mark_as_advanced(Zstandard_INCLUDE_DIR Zstandard_LIBRARY)
if(Zstandard_FOUND AND NOT TARGET Zstandard::zstd)
  add_library(Zstandard::zstd INTERFACE IMPORTED)
  set_target_properties(Zstandard::zstd PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Zstandard_INCLUDE_DIR}"
                                                   INTERFACE_LINK_LIBRARIES "${Zstandard_LIBRARY}")
endif()
