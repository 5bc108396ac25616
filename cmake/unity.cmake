# Most of the time of a build from nothing goes into reading the same headers (JSON, formatting, tests) for every file.
# So the files of a folder are compiled together. With ALIBI_UNITY_BUILD=OFF each is compiled alone, which is better
# while one edits; CI does so with clang.
option(ALIBI_UNITY_BUILD "Compile the files of a folder together" ON)

# For the sources of a target. Alone stay those that Highway compiles several times by including them again.
function(compile_folders_together target)
  if(NOT ALIBI_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    file(STRINGS ${path} compiled_again REGEX "hwy/foreach_target\\.h" LIMIT_COUNT 1)
    if(NOT compiled_again)
      get_filename_component(folder ${path} DIRECTORY)
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
      string(REPLACE "/" "_" group ${folder})
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()
