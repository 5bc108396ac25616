# A full build spends most of its time on reading the same headers (JSON, formatting, tests) for every file. So the files
# of a folder are compiled together. With ALIBI_UNITY_BUILD=OFF each file is compiled alone, which is faster while you
# edit. scripts/check/tidy also compiles each file alone.
option(ALIBI_UNITY_BUILD "Compile the files of a folder together" ON)

# The presets that only check use these to leave out Highway's EMU128. With sanitizers it takes ten times as long to compile
# as SSE4, AVX2 and AVX3 together. SSE4, which has vectors of the same length, takes its place.
set(ALIBI_KERNEL_OPTIONS "" CACHE STRING "Compiler options of kernels alone, on x86-64")
# With sanitizers, optimizing a file takes clang more time than the rest of compiling it. So the same presets do not
# optimize files that compute little.
set(ALIBI_LIBRARY_OPTIONS "" CACHE STRING "Compiler options of everything but the operator, before those of kernels")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(ALIBI_KERNEL_OPTIONS "")
  set(ALIBI_LIBRARY_OPTIONS "")  # kernels would not be optimized either
endif()

# For the sources of a target. Kernels are compiled alone, because Highway includes them again for each instruction set.
# CMake's UNITY_BUILD writes the same files below the project's own folder in the build. There a compiler's cache, which
# compares relative paths, does not find them again when alibi is part of another project.
function(compile_folders_together target)
  get_target_property(sources ${target} SOURCES)
  set(compiled "")
  set(groups "")
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    file(STRINGS ${path} compiled_again REGEX "hwy/foreach_target\\.h" LIMIT_COUNT 1)
    if(compiled_again)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ALIBI_KERNEL_OPTIONS}")
    endif()
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(compiled_again OR alone OR NOT ALIBI_UNITY_BUILD)
      list(APPEND compiled ${source})
    else()
      get_filename_component(folder ${path} DIRECTORY)
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
      string(REPLACE "/" "_" group ${folder})
      if(NOT group IN_LIST groups)
        list(APPEND groups ${group})
        set(includes_of_${group} "")
      endif()
      string(APPEND includes_of_${group} "#include \"${path}\"\n")
    endif()
  endforeach()
  foreach(group IN LISTS groups)
    set(together ${CMAKE_BINARY_DIR}/together/${target}/unity_${group}_.cc)
    file(CONFIGURE OUTPUT ${together} CONTENT "${includes_of_${group}}" @ONLY)
    list(APPEND compiled ${together})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${compiled}")
endfunction()
