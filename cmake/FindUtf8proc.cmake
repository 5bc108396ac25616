# Debian's utf8proc package has no CMake files.
find_path(Utf8proc_INCLUDE_DIR utf8proc.h)
find_library(Utf8proc_LIBRARY utf8proc)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Utf8proc REQUIRED_VARS Utf8proc_LIBRARY Utf8proc_INCLUDE_DIR)
mark_as_advanced(Utf8proc_INCLUDE_DIR Utf8proc_LIBRARY)
if(Utf8proc_FOUND AND NOT TARGET Utf8proc::utf8proc)
  add_library(Utf8proc::utf8proc INTERFACE IMPORTED)
  set_target_properties(Utf8proc::utf8proc PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Utf8proc_INCLUDE_DIR}"
                                                   INTERFACE_LINK_LIBRARIES "${Utf8proc_LIBRARY}")
endif()
