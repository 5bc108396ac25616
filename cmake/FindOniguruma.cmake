# Debian's Oniguruma package has no CMake files.
find_path(Oniguruma_INCLUDE_DIR oniguruma.h)
find_library(Oniguruma_LIBRARY onig)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Oniguruma REQUIRED_VARS Oniguruma_LIBRARY Oniguruma_INCLUDE_DIR)
mark_as_advanced(Oniguruma_INCLUDE_DIR Oniguruma_LIBRARY)
if(Oniguruma_FOUND AND NOT TARGET Oniguruma::onig)
  add_library(Oniguruma::onig INTERFACE IMPORTED)
  # Oniguruma has its own regcomp() and regexec(). The C library's must be found first, or every use of <regex.h> in the
  # program fails.
  set_target_properties(Oniguruma::onig PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Oniguruma_INCLUDE_DIR}"
                                                   INTERFACE_LINK_LIBRARIES "-Wl,-lc;${Oniguruma_LIBRARY}")
endif()
